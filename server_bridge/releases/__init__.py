"""Signing and publishing releases: keys, the signer process, TUF metadata, the publisher."""
