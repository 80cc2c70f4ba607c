// A client on the TypeScript SDK 1.x that answers questions: walks the steps of a plan.

import { CAPABILITIES, ROOTS, SAMPLED, acts, fillIn, heard, onprogress, walk } from './asking.mjs';
import { plan, reach, require } from './plan.mjs';

const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport, getDefaultEnvironment } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const transport = reach({
  stdio: (command, args) =>
    new StdioClientTransport({ command, args, env: { ...getDefaultEnvironment(), ...plan.env } }),
  http: (url, options) => new StreamableHTTPClientTransport(url, options),
});
// The client itself does not tell what was negotiated; its transport is told, if it wants to know.
let protocolVersion;
const wantsToKnow = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (negotiated) => {
  protocolVersion = negotiated;
  wantsToKnow?.(negotiated);
};

const client = new Client({ name: 'asking-typescript1', version: '1.0.0' }, { capabilities: CAPABILITIES });
client.setRequestHandler(types.ElicitRequestSchema, ({ method, params }) => {
  heard(method, params);
  return fillIn(params);
});
client.setRequestHandler(types.CreateMessageRequestSchema, ({ method, params }) => {
  heard(method, params);
  return SAMPLED;
});
client.setRequestHandler(types.ListRootsRequestSchema, ({ method }) => {
  heard(method);
  return ROOTS;
});
client.fallbackNotificationHandler = async ({ method, params }) => void heard(method, params);

await client.connect(transport);
await client.setLoggingLevel(plan.level);
const steps = await walk({
  ...acts(client),
  call: (params) => client.callTool(params, undefined, { onprogress }),
  watch: async ({ uris }) => {
    for (const uri of uris) await client.subscribeResource({ uri });
  },
});
await client.close();
process.stdout.write(JSON.stringify({ protocolVersion, steps }));
