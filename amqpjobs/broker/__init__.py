"""A RabbitMQ of one's own: a private node as a child process, for `amqpjobs up`, `amqpjobs broker` and the tests."""
