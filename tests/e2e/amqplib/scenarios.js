'use strict';
// What a Node program does with a broker, by amqplib: `node scenarios.js NAME URL` runs one scenario
// and ends with status 0, or with the failed assertion. Queues are exclusive, so nothing remains.

const assert = require('node:assert/strict');
const { once } = require('node:events');
const amqp = require('amqplib');
const callbackApi = require('amqplib/callback_api');

/** The next `count` messages of a queue, acknowledged unless told otherwise. */
function consume(channel, queue, count, options = {}) {
  const messages = [];
  return new Promise((resolve, reject) => {
    channel
      .consume(
        queue,
        (message) => {
          if (message === null) return reject(new Error('cancelled by the broker'));
          messages.push(message);
          if (!options.noAck && !options.keep) channel.ack(message);
          if (messages.length === count) resolve(messages);
        },
        options,
      )
      .catch(reject);
  });
}

const texts = (messages) => messages.map((message) => message.content.toString());

async function exclusiveQueue(channel, options = {}) {
  const { queue } = await channel.assertQueue('', { exclusive: true, ...options });
  return queue;
}

const scenarios = {
  async publishAndConsume(connection) {
    const channel = await connection.createChannel();
    const queue = await exclusiveQueue(channel);
    const body = Buffer.alloc(300_000, 'recado');
    const sent = {
      contentType: 'application/octet-stream',
      messageId: 'm',
      timestamp: 1_700_000_000,
      priority: 3,
      persistent: true,
      headers: { text: 'ü', whole: 42, large: 2 ** 40, half: 1.5, truth: true, list: [1, 'two', null] },
    };
    channel.sendToQueue(queue, body, sent);
    const [message] = await consume(channel, queue, 1);
    assert.deepEqual(message.content, body);
    const { contentType, messageId, timestamp, priority, deliveryMode, headers } = message.properties;
    assert.deepEqual(
      { contentType, messageId, timestamp, priority, persistent: deliveryMode === 2, headers },
      sent,
    );
    assert.equal(message.fields.redelivered, false);
  },

  async workIsShared(connection) {
    const channel = await connection.createChannel();
    const queue = await exclusiveQueue(channel);
    const workers = [await connection.createChannel(), await connection.createChannel()];
    for (const worker of workers) await worker.prefetch(1);
    const shares = [[], []];
    const all = new Promise((resolve) => {
      workers.forEach((worker, index) =>
        worker.consume(queue, (message) => {
          shares[index].push(Number(message.content));
          worker.ack(message);
          if (shares[0].length + shares[1].length === 20) resolve();
        }),
      );
    });
    for (let number = 0; number < 20; number++) channel.sendToQueue(queue, Buffer.from(`${number}`));
    await all;
    const seen = shares.flat().sort((a, b) => a - b);
    assert.deepEqual(seen, [...Array(20).keys()]);
    assert.ok(shares[0].length > 0 && shares[1].length > 0);
  },

  async confirms(connection) {
    const channel = await connection.createConfirmChannel();
    const queue = await exclusiveQueue(channel, {
      arguments: { 'x-max-length': 3, 'x-overflow': 'reject-publish' },
    });
    for (let number = 0; number < 3; number++) channel.sendToQueue(queue, Buffer.from(`${number}`));
    await channel.waitForConfirms();
    await assert.rejects(
      new Promise((resolve, reject) => {
        channel.sendToQueue(queue, Buffer.from('refused'), {}, (error) =>
          error ? reject(error) : resolve(),
        );
      }),
    );
    assert.equal((await channel.checkQueue(queue)).messageCount, 3);
  },

  async mandatoryReturns(connection) {
    const channel = await connection.createConfirmChannel();
    const returned = once(channel, 'return');
    channel.publish('', 'no such queue', Buffer.from('back'), { mandatory: true });
    const [message] = await returned;
    assert.equal(message.fields.replyText, 'NO_ROUTE');
    assert.equal(message.content.toString(), 'back');
    await channel.waitForConfirms();
  },

  async nackAndReject(connection) {
    const channel = await connection.createChannel();
    const letters = await exclusiveQueue(channel);
    const queue = await exclusiveQueue(channel, {
      deadLetterExchange: '',
      deadLetterRoutingKey: letters,
    });
    for (const text of ['one', 'two']) channel.sendToQueue(queue, Buffer.from(text));
    const [first, second] = await consume(channel, queue, 2, { keep: true });
    channel.nack(first, false, false);
    channel.reject(second, false);
    const dead = await consume(channel, letters, 2);
    assert.deepEqual(texts(dead), ['one', 'two']);
    const [death] = dead[0].properties.headers['x-death'];
    assert.equal(death.reason, 'rejected');
    assert.equal(death.queue, queue);
    assert.equal(death.count, 1);
  },

  async exchangesAndBindings(connection) {
    const channel = await connection.createChannel();
    const queue = await exclusiveQueue(channel);
    const [from, to] = [`from-${queue}`, `to-${queue}`];
    for (const exchange of [from, to]) {
      await channel.assertExchange(exchange, 'topic', { durable: false, autoDelete: true });
    }
    await channel.bindExchange(to, from, 'a.#');
    await channel.bindQueue(queue, to, '*.b');
    channel.publish(from, 'a.b', Buffer.from('through'));
    channel.publish(from, 'c.b', Buffer.from('stopped'));
    channel.publish(to, 'c.b', Buffer.from('beside'));
    assert.deepEqual(texts(await consume(channel, queue, 2)), ['through', 'beside']);
    await channel.unbindQueue(queue, to, '*.b');
    channel.on('error', () => {});
    await assert.rejects(channel.checkExchange(from), /404/);
  },

  async headersExchange(connection) {
    const channel = await connection.createChannel();
    const queue = await exclusiveQueue(channel);
    await channel.bindQueue(queue, 'amq.headers', '', { 'x-match': 'all', test: queue, kind: 'a' });
    channel.publish('amq.headers', '', Buffer.from('no'), { headers: { test: queue, kind: 'b' } });
    channel.publish('amq.headers', '', Buffer.from('yes'), { headers: { test: queue, kind: 'a' } });
    assert.deepEqual(texts(await consume(channel, queue, 1)), ['yes']);
  },

  async errorsCloseTheChannel(connection) {
    const channel = await connection.createChannel();
    const failed = once(channel, 'error');
    await assert.rejects(channel.checkQueue('no such queue'), /404 \(NOT-FOUND\)/);
    assert.equal((await failed)[0].code, 404);
    const another = await connection.createChannel();
    await exclusiveQueue(another);
  },

  async cancelNotification(connection) {
    const channel = await connection.createChannel();
    const queue = await exclusiveQueue(channel);
    const cancelled = new Promise((resolve) => channel.consume(queue, resolve));
    await channel.checkQueue(queue);
    await channel.deleteQueue(queue);
    assert.equal(await cancelled, null);
  },

  async getPurgeDelete(connection) {
    const channel = await connection.createConfirmChannel();
    const queue = await exclusiveQueue(channel);
    assert.equal(await channel.get(queue), false);
    for (const text of ['one', 'two', 'three']) channel.sendToQueue(queue, Buffer.from(text));
    await channel.waitForConfirms();
    const message = await channel.get(queue, { noAck: true });
    assert.equal(message.content.toString(), 'one');
    assert.equal(message.fields.messageCount, 2);
    assert.equal((await channel.purgeQueue(queue)).messageCount, 2);
    assert.equal((await channel.deleteQueue(queue)).messageCount, 0);
  },

  async requestsAndReplies(connection) {
    const replies = 'amq.rabbitmq.reply-to';
    const server = await connection.createChannel();
    const queue = await exclusiveQueue(server);
    await server.consume(queue, (message) => {
      const { replyTo, correlationId } = message.properties;
      const doubled = Buffer.from(`${2 * Number(message.content)}`);
      server.sendToQueue(replyTo, doubled, { correlationId });
      server.ack(message);
    });
    const client = await connection.createChannel();
    const answers = consume(client, replies, 5, { noAck: true });
    await client.checkExchange('amq.direct');
    for (let number = 0; number < 5; number++) {
      client.sendToQueue(queue, Buffer.from(`${number}`), {
        replyTo: replies,
        correlationId: `${number}`,
      });
    }
    const found = (await answers).map((m) => [m.properties.correlationId, m.content.toString()]);
    assert.deepEqual(found, [['0', '0'], ['1', '2'], ['2', '4'], ['3', '6'], ['4', '8']]);
  },

  async recover(connection) {
    const channel = await connection.createChannel();
    const queue = await exclusiveQueue(channel);
    channel.sendToQueue(queue, Buffer.from('again'));
    let deliveries = 0;
    await new Promise((resolve, reject) => {
      channel.consume(queue, (message) => {
        deliveries += 1;
        if (deliveries === 1) return channel.recover().catch(reject);
        assert.equal(message.fields.redelivered, true);
        channel.ack(message);
        resolve();
      });
    });
  },

  async smallFrames(_, url) {
    const connection = await amqp.connect(`${url}?frameMax=4096`);
    const channel = await connection.createChannel();
    const queue = await exclusiveQueue(channel);
    const body = Buffer.alloc(1_000_000, 'x');
    channel.sendToQueue(queue, body);
    const [message] = await consume(channel, queue, 1);
    assert.deepEqual(message.content, body);
    await connection.close();
  },

  async callbackApi(_, url) {
    await new Promise((resolve, reject) => {
      const or = (next) => (error, result) => (error ? reject(error) : next(result));
      callbackApi.connect(url, or((connection) => {
        connection.createChannel(or((channel) => {
          channel.assertQueue('', { exclusive: true }, or(({ queue }) => {
            channel.sendToQueue(queue, Buffer.from('callback'));
            channel.consume(queue, (message) => {
              assert.equal(message.content.toString(), 'callback');
              connection.close(resolve);
            }, { noAck: true });
          }));
        }));
      }));
    });
  },
};

async function main([name, url]) {
  if (name === '--list') return console.log(Object.keys(scenarios).join('\n'));
  const connection = await amqp.connect(url);
  await scenarios[name](connection, url);
  await connection.close();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
