// A receiver that express-rate-limit meters. It writes its address to standard output, and answers GET /count with
// its numbers.
import express from 'express';
import { rateLimit } from 'express-rate-limit';

const app = express();
const count = { requests: 0, limited: 0, accepted: 0 };
app.get('/count', (_, res) => res.json(count));
app.use((_, res, next) => {
  count.requests++;
  res.on('finish', () => {
    if (res.statusCode === 429) count.limited++;
  });
  next();
});
app.use(rateLimit({ windowMs: 1000, limit: 100, validate: false }));
app.post('/', (_, res) => {
  count.accepted++;
  res.json({});
});
const server = app.listen(0, '127.0.0.1', () => console.log(`127.0.0.1:${server.address().port}`));
