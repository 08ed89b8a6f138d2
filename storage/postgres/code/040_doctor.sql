-- What `apiary doctor` asks the server itself.

-- The Python that PL/Python runs: functions run by it, not by the Python of any client.
CREATE OR REPLACE FUNCTION apiary.python_version() RETURNS text LANGUAGE plpython3u AS $body$
import sys
return ".".join(map(str, sys.version_info[:3]))
$body$;

GRANT EXECUTE ON FUNCTION apiary.python_version() TO apiary_runtime, apiary_deployer, apiary_reader;
