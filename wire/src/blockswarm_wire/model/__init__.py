"""A model's files and its anatomy: what client and server both need to load their own part of it.

The only room of this distribution that needs torch and transformers (extra `model`). Nothing here computes.
"""
