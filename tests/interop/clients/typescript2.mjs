// A client on the TypeScript SDK 2.x (@modelcontextprotocol/client), in the mode the plan names.

import { plan, reach, require, run } from './plan.mjs';

const { Client, SSEClientTransport, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport, getDefaultEnvironment } = require('@modelcontextprotocol/client/stdio');

const transport = reach({
  stdio: (command, args) =>
    new StdioClientTransport({ command, args, env: { ...getDefaultEnvironment(), ...plan.env } }),
  http: (url, options) => new StreamableHTTPClientTransport(url, options),
  sse: (url, options) => new SSEClientTransport(url, options),
});
const mode = ['legacy', 'auto'].includes(plan.mode) ? plan.mode : { pin: plan.mode };
const client = new Client({ name: 'typescript2', version: '1.0.0' }, { versionNegotiation: { mode } });
await run(
  client,
  transport,
  () => client.getNegotiatedProtocolVersion(),
  (params, options) => client.callTool(params, options),
);
