"""From received bytes to objects and back: decoding, records, views, encoding, write-back."""
