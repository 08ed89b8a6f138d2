"""The gRPC interface: `apiary/v1/apiary.proto`, and what `make proto` generates from it."""
