"""The fleet's certificates: an authority, a certificate for each connection, revocation, the broker's files."""
