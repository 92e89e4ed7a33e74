"""The ordered key-value port over SlateDB."""
