"""The discovery significance when the background may move along systematic uncertainties."""
