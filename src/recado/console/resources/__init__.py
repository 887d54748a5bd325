"""The resources of the API, each module registering its routes in `recado.console.routes.API`."""
