"""Apiary: functions inside the database, workflows that run exactly once, provenance in SQL."""
