"""Values to words: terminal, JSON, shell. No decisions here."""
