"""Reading: states of tenants, series by their labels, and samples as columns."""
