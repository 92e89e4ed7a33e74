"""The functions of PromQL by family, each a step from columns to columns."""
