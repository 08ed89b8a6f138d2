"""The contract with a database engine (`base`), and one module or more per engine."""
