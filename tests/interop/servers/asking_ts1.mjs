// A handshake server on the TypeScript SDK 1.x that wants something of its caller.
//
//   asking_ts1.mjs MODULES NAME            over stdio
//   asking_ts1.mjs MODULES NAME --http     over Streamable HTTP; prints its port on the first line
//
// MODULES is the directory whose node_modules has the SDK. Offers the same as `asking_sdk1.py`.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';

const [modules, name] = process.argv.slice(2);
const require = createRequire(`${modules}/package.json`);
const { completable } = require('@modelcontextprotocol/sdk/server/completable.js');
const { McpServer, ResourceTemplate } = require('@modelcontextprotocol/sdk/server/mcp.js');
const { StdioServerTransport } = require('@modelcontextprotocol/sdk/server/stdio.js');
const { StreamableHTTPServerTransport } = require('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { SubscribeRequestSchema, UnsubscribeRequestSchema } = require('@modelcontextprotocol/sdk/types.js');
const z = require('zod');

const STEP_MS = 50;
const WATCHED = `${name}://watched`;
const form = (field) => ({ type: 'object', properties: { [field]: { type: 'string' } }, required: [field] });
const said = (text) => ({ content: [{ type: 'text', text }] });

let version = 1;

// A server object has one connection, so each session gets one of its own.
function make() {
  const server = new McpServer(
    { name, version: '1.0.0' },
    { capabilities: { logging: {}, resources: { subscribe: true, listChanged: true } } },
  );
  const caller = server.server;

  const asking = (ask) => async (...args) => {
    try {
      return said(await ask(...args));
    } catch (error) {
      if (error.code === undefined) throw error;
      return said(`refused ${error.code}`);
    }
  };

  server.registerTool(
    'interview',
    { description: 'Ask the user twice and the model once.' },
    asking(async (extra) => {
      const here = { relatedRequestId: extra.requestId };
      const who = await caller.elicitInput({ message: 'Who are you?', requestedSchema: form('name') }, here);
      const color = await caller.elicitInput({ message: 'Which colour?', requestedSchema: form('color') }, here);
      const question = { role: 'user', content: { type: 'text', text: 'Say hi' } };
      const answer = await caller.createMessage({ messages: [question], maxTokens: 10 }, here);
      return `${who.content.name} likes ${color.content.color}, the model says ${answer.content.text}`;
    }),
  );
  // These two do not say for which call they ask, as most servers on this SDK do not.
  server.registerTool(
    'visit',
    { description: 'Send the user to a page.' },
    asking(async () => {
      const page = { message: 'Please sign in', url: 'https://example.test/sign-in', elicitationId: 'sign-in-1' };
      return (await caller.elicitInput({ mode: 'url', ...page })).action;
    }),
  );
  server.registerTool(
    'roots',
    { description: 'Ask where the user works.' },
    asking(async () => (await caller.listRoots()).roots[0].uri),
  );
  server.registerTool('count', { description: 'Report progress at every step.' }, async (extra) => {
    for (const progress of [1, 2, 3]) {
      const params = { progressToken: extra._meta?.progressToken, progress, total: 3, message: `step ${progress}` };
      if (params.progressToken !== undefined) {
        await extra.sendNotification({ method: 'notifications/progress', params });
      }
      await sleep(STEP_MS);
    }
    return said('counted');
  });
  server.registerTool('shout', { description: 'Log a whisper and a shout.' }, async (extra) => {
    for (const [level, data] of [['debug', 'quiet'], ['warning', 'loud']]) {
      await extra.sendNotification({ method: 'notifications/message', params: { level, logger: 'voice', data } });
    }
    await sleep(STEP_MS);
    return said('shouted');
  });
  server.registerTool('big', { description: 'Say half a million characters.' }, () => said('x'.repeat(500_000)));
  server.registerTool(
    'grow',
    { description: 'Offer one more tool.', inputSchema: { tool: z.string() } },
    ({ tool }) => {
      server.registerTool(tool, {}, () => said('new'));
      return said('grown');
    },
  );

  const watched = new Set();
  caller.setRequestHandler(SubscribeRequestSchema, ({ params }) => (watched.add(params.uri), {}));
  caller.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => (watched.delete(params.uri), {}));
  server.registerTool('touch', { description: 'Change the watched resource.' }, async () => {
    version += 1;
    if (watched.has(WATCHED)) await caller.sendResourceUpdated({ uri: WATCHED });
    return said(`version ${version}`);
  });

  const text = (uri, words) => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: words }] });
  server.registerResource('watched', WATCHED, {}, (uri) => text(uri, `version ${version}`));
  server.registerResource('note', `${name}://note`, { mimeType: 'text/plain' }, (uri) => text(uri, 'a note: äöü'));
  server.registerResource('shared', 'shared://note', {}, (uri) => text(uri, `of ${name}`));
  server.registerResource('some_bytes', `${name}://bytes`, { mimeType: 'application/octet-stream' }, (uri) => {
    const blob = Buffer.from(Uint8Array.from({ length: 256 }, (_, n) => n)).toString('base64');
    return { contents: [{ uri: uri.href, mimeType: 'application/octet-stream', blob }] };
  });
  const complete = { n: (value) => ['7', '70'].filter((n) => n.startsWith(value)) };
  const template = new ResourceTemplate(`${name}://square/{n}`, { list: undefined, complete });
  server.registerResource('square', template, {}, (uri, { n }) => text(uri, String(n ** 2)));
  const who = completable(z.string(), (value) => ['Ann', 'Anton', 'Ben'].filter((each) => each.startsWith(value)));
  const hello = (to) => ({ messages: [{ role: 'user', content: { type: 'text', text: `Say hello to ${to}` } }] });
  server.registerPrompt('greet', { description: 'Greet somebody.', argsSchema: { who } }, (args) => hello(args.who));
  server.registerPrompt('introduce', { description: 'Greet whoever is there.' }, async (extra) => {
    const question = { message: 'Who are you?', requestedSchema: form('name') };
    const answer = await caller.elicitInput(question, { relatedRequestId: extra.requestId });
    return hello(answer.content.name);
  });
  return server;
}

if (process.argv.includes('--http')) {
  const sessions = new Map();
  const http = createServer(async (request, response) => {
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (transport === undefined) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => void sessions.set(id, transport),
      });
      await make().connect(transport);
    }
    await transport.handleRequest(request, response);
  });
  http.listen(0, '127.0.0.1', () => console.log(http.address().port));
} else {
  await make().connect(new StdioServerTransport());
}
