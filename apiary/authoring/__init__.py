"""What authors write with: decorators, signatures, values, and the loading of an application.

Nothing here knows a database engine. Everything that runs inside the database process as well
(all but `analysis`, `application` and `bundle`) imports only the standard library.
"""
