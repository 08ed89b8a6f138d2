"""One module per system: what runs in its process, behind `Adapter`."""
