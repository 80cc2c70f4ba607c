// A client on the TypeScript SDK 1.x (@modelcontextprotocol/sdk).

import { plan, require, run } from './plan.mjs';

const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport, getDefaultEnvironment } = require('@modelcontextprotocol/sdk/client/stdio.js');

const [command, ...args] = plan.command;
const transport = new StdioClientTransport({ command, args, env: { ...getDefaultEnvironment(), ...plan.env } });
let version;
transport.setProtocolVersion = (negotiated) => { version = negotiated; };
const client = new Client({ name: 'typescript1', version: '1.0.0' });
await run(client, transport, () => version, (params, options) => client.callTool(params, undefined, options));
