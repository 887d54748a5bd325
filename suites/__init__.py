"""The client projects' own test suites, run on recado and on RabbitMQ and compared test by test.

`./dev suites [NAME]` downloads a suite, starts a broker, tells the suite where it listens, and
writes docs/compatibility.md. Nothing that is downloaded enters the repository.

Reading order: catalogue (which suites), sources and environments (where they come from),
surroundings (what they need besides a broker), running, results, expectations, page.
"""
