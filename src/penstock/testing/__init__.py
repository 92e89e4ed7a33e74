"""Shipped doubles."""
