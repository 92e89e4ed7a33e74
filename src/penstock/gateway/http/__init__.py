"""Requests and answers: bounded bodies, routes, errors as statuses, the guard, the application and its server."""
