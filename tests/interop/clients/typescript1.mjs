// A client on the TypeScript SDK 1.x (@modelcontextprotocol/sdk).

import { plan, reach, require, run } from './plan.mjs';

const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js');
const { StdioClientTransport, getDefaultEnvironment } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');

const transport = reach({
  stdio: (command, args) =>
    new StdioClientTransport({ command, args, env: { ...getDefaultEnvironment(), ...plan.env } }),
  http: (url, options) => new StreamableHTTPClientTransport(url, options),
  sse: (url, options) => new SSEClientTransport(url, options),
});
// The client itself does not tell what was negotiated; its transport is told, if it wants to know.
let version;
const wantsToKnow = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (negotiated) => {
  version = negotiated;
  wantsToKnow?.(negotiated);
};
const client = new Client({ name: 'typescript1', version: '1.0.0' });
await run(client, transport, () => version, (params, options) => client.callTool(params, undefined, options));
