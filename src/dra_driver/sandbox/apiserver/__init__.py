"""An API server in one process, for tests, for the demo and for people who develop a driver.

::

    with ApiServer() as api:
        client = Client(api.connection, "example")

It speaks the HTTP of a real one for the kinds that a driver, a controller and a kubelet touch, in memory and without authorization. What both do
alike is fixed by the contract tests, which run against a real server too. Faults are made on purpose: `fail`, `hang`, `lose_answer`, `compact`,
`cut_watches`, `mute_watches`.
"""

from dra_driver.sandbox.apiserver.server import ApiServer

__all__ = ["ApiServer"]
