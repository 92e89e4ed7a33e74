"""Formats of office programs, books and print: zip archives of XML parts, spreadsheets, RTF, PDF."""
