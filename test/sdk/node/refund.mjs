// Makes refunds with one SDK, one for each line of input, and prints the user's error
// code as a line of JSON, "" for success.
//   node refund.mjs alipay|alipay-v3|stripe BASE_URL
// The keys are in PRIVATE_KEY and PUBLIC_KEY.
import readline from 'node:readline';
import { AlipaySdk } from 'alipay-sdk';
import Stripe from 'stripe';

const [kind, base] = process.argv.slice(2);
const url = new URL(base);

function alipay() {
  return new AlipaySdk({
    appId: '2021000000000001',
    privateKey: process.env.PRIVATE_KEY,
    alipayPublicKey: process.env.PUBLIC_KEY,
    gateway: base + '/gateway.do',
    endpoint: base,
  });
}

const numbers = { out_trade_no: 'T1', out_request_no: 'R1', refund_amount: '1.00' };

const clients = {
  alipay() {
    const sdk = alipay();
    return async () => {
      const r = await sdk.exec('alipay.trade.refund', { bizContent: numbers });
      return r.code === '10000' ? '' : `${r.code} ${r.subCode ?? ''}`;
    };
  },
  'alipay-v3'() {
    const sdk = alipay();
    return async () => {
      await sdk.curl('POST', '/v3/alipay/trade/refund', { body: numbers });
      return '';
    };
  },
  stripe() {
    const sdk = new Stripe('sk_test_1', { host: url.hostname, port: url.port, protocol: 'http', telemetry: false });
    return async () => {
      const r = await sdk.refunds.create({ charge: 'ch_1' });
      return r.id === 'ch_1' ? '' : 'no refund: ' + JSON.stringify(r);
    };
  },
};

const refund = clients[kind]();
for await (const _ of readline.createInterface({ input: process.stdin })) {
  let seen;
  try {
    seen = await refund();
  } catch (e) {
    seen = [e.name, e.type, e.statusCode ?? e.status ?? e.responseHttpStatus, e.code, e.message].filter(Boolean).join(' ');
  }
  console.log(JSON.stringify(seen));
}
process.exit(0); // answers that the SDK did not read would keep the process alive
