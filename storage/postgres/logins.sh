#!/usr/bin/env bash
# Make the logins of the servers and of deploys, members of the platform's roles, in a new cluster.
# The migrations find the roles there and give them their privileges.
set -euo pipefail

: "${APIARY_RUNTIME_PASSWORD:?set it to the password of the servers and executors}"
: "${APIARY_DEPLOYER_PASSWORD:?set it to the password of deploys}"

# Passwords go in as psql variables by the environment: arguments are visible to every process.
psql --no-psqlrc --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'END'
\getenv runtime_password APIARY_RUNTIME_PASSWORD
\getenv deployer_password APIARY_DEPLOYER_PASSWORD
CREATE ROLE apiary_owner NOLOGIN;
CREATE ROLE apiary_deployer NOLOGIN;
CREATE ROLE apiary_runtime NOLOGIN;
CREATE ROLE apiary_reader NOLOGIN;
CREATE ROLE apiary_server LOGIN PASSWORD :'runtime_password' IN ROLE apiary_runtime;
CREATE ROLE apiary_deploys LOGIN PASSWORD :'deployer_password' IN ROLE apiary_deployer;
END
