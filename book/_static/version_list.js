// Replaced by `make release`, which knows what other versions stand beside this one.
window.rmVersions = [];
