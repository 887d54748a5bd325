// A reporter for Node's test runner: one line of JSON per finished test, written at once. Node's
// own JUnit reporter writes nothing at all when a file has to be killed.

module.exports = async function* lines(source) {
  const path = [];
  for await (const { type, data } of source) {
    if (type === 'test:start') {
      path.length = data.nesting;
      path.push(data.name);
    }
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    if (data.details.type === 'suite') continue;
    const names = [...path.slice(0, data.nesting), data.name];
    const outcome = data.skip !== undefined || data.todo !== undefined ? 'skipped' : type.slice(5);
    const error = data.details.error;
    const message = error ? String(error.cause?.message ?? error.message) : '';
    yield `${JSON.stringify({ names, outcome, message })}\n`;
  }
};
