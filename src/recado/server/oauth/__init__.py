"""Logins with OAuth 2 tokens, for the extra `oauth`.

A client sends its access token, a JSON Web Token (JWT), as the password. The token is verified with the public
keys of the identity provider, and its scopes are the permissions of the user, as in RabbitMQ's plugin
rabbitmq_auth_backend_oauth2. The modules:

    claims      from the claims of a verified token to a user; needs no key and no library
    keys        the keys of the provider, loaded again when it rotates them
    source      reads the document with the keys, from a URL or a file
    verifier    checks the signature of a token
"""
