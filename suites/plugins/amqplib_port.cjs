// Loaded before amqplib's tests, some of which have RabbitMQ's port fixed in their code: leads
// such connections to where our broker listens. It also gives each test and hook a time limit,
// so that one that waits for ever is reported as failed and the file's others are run.

const net = require('node:net');
const test = require('node:test');

const THEIRS = 5672;
const LIMIT = { timeout: 10000 };

const connect = net.connect;
net.connect = function (options, ...rest) {
  const ours = { host: process.env.SUITE_AMQP_HOST, port: Number(process.env.SUITE_AMQP_PORT) };
  return connect.call(this, options.port === THEIRS ? { ...options, ...ours } : options, ...rest);
};

const it = test.it;
test.it = Object.assign(
  (name, ...rest) => (typeof rest[0] === 'function' ? it(name, LIMIT, ...rest) : it(name, ...rest)),
  it,
);
for (const name of ['beforeEach', 'afterEach']) {
  const hook = test[name];
  test[name] = (fn, options) => hook(fn, { ...LIMIT, ...options });
}
