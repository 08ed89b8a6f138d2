"""SYMI: a new placement of a mixture's experts for every training iteration."""
