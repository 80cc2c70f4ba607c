// A client on the TypeScript SDK 2.x (@modelcontextprotocol/client), in the mode the plan names.

import { plan, require, run } from './plan.mjs';

const { Client } = require('@modelcontextprotocol/client');
const { StdioClientTransport, getDefaultEnvironment } = require('@modelcontextprotocol/client/stdio');

const [command, ...args] = plan.command;
const mode = ['legacy', 'auto'].includes(plan.mode) ? plan.mode : { pin: plan.mode };
const client = new Client({ name: 'typescript2', version: '1.0.0' }, { versionNegotiation: { mode } });
await run(
  client,
  new StdioClientTransport({ command, args, env: { ...getDefaultEnvironment(), ...plan.env } }),
  () => client.getNegotiatedProtocolVersion(),
  (params, options) => client.callTool(params, options),
);
