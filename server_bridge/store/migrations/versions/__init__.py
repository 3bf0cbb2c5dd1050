"""One file a migration; never edited once released."""
