// Replaced by `make publish`, which knows what other versions stand beside this one.
window.rmVersions = [];
