"""`amqpjobs up`: a broker, the scheduler, a worker and the dashboard as children of one process in one terminal."""
