// A client on the TypeScript SDK 2.x that answers questions, in the mode the plan names.

import { CAPABILITIES, ROOTS, SAMPLED, acts, fillIn, heard, onprogress, walk } from './asking.mjs';
import { plan, reach, require } from './plan.mjs';

const { Client, LOG_LEVEL_META_KEY, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport, getDefaultEnvironment } = require('@modelcontextprotocol/client/stdio');

const transport = reach({
  stdio: (command, args) =>
    new StdioClientTransport({ command, args, env: { ...getDefaultEnvironment(), ...plan.env } }),
  http: (url, options) => new StreamableHTTPClientTransport(url, options),
});
const mode = ['legacy', 'auto'].includes(plan.mode) ? plan.mode : { pin: plan.mode };
const client = new Client(
  { name: 'asking-typescript2', version: '1.0.0' },
  { capabilities: CAPABILITIES, versionNegotiation: { mode } },
);
client.setRequestHandler('elicitation/create', ({ method, params }) => {
  heard(method, params);
  return fillIn(params);
});
client.setRequestHandler('sampling/createMessage', ({ method, params }) => {
  heard(method, params);
  return SAMPLED;
});
client.setRequestHandler('roots/list', ({ method }) => {
  heard(method);
  return ROOTS;
});
client.fallbackNotificationHandler = async ({ method, params }) => void heard(method, params);

await client.connect(transport);
const protocolVersion = client.getNegotiatedProtocolVersion();
const isModern = protocolVersion >= '2026';
if (!isModern) await client.setLoggingLevel(plan.level);
const _meta = isModern ? { [LOG_LEVEL_META_KEY]: plan.level } : undefined;
const steps = await walk({
  ...acts(client),
  call: (params) => client.callTool({ ...params, _meta }, { onprogress }),
  watch: async ({ uris }) => {
    if (isModern) await client.listen({ toolsListChanged: true, resourceSubscriptions: uris });
    else for (const uri of uris) await client.subscribeResource({ uri });
  },
});
await client.close();
process.stdout.write(JSON.stringify({ protocolVersion, steps }));
