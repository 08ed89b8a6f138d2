"""Tests of the ReCycle model library."""
