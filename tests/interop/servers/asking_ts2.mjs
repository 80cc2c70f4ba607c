// A server of both eras on the TypeScript SDK 2.x that wants something of its caller.
//
//   asking_ts2.mjs MODULES NAME [--modern-only]            over stdio
//   asking_ts2.mjs MODULES NAME [--modern-only] --http     over Streamable HTTP; prints its port on the first line
//
// MODULES is the directory whose node_modules has the SDK. Offers the same as `asking_sdk2.py`.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';

const [modules, name] = process.argv.slice(2);
const require = createRequire(`${modules}/package.json`);
const { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } = require('@modelcontextprotocol/node');
const sdk = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const z = require('zod');

const { acceptedContent, inputRequired, inputResponse } = sdk;
const STEP_MS = 50;
const WATCHED = `${name}://watched`;
const ASK_NAME = { message: 'Who are you?', requestedSchema: z.object({ name: z.string() }) };
const ASK_COLOR = { message: 'Which colour?', requestedSchema: z.object({ color: z.string() }) };
const SAY_HI = { messages: [{ role: 'user', content: { type: 'text', text: 'Say hi' } }], maxTokens: 10 };
const PAGE = { message: 'Please sign in', url: 'https://example.test/sign-in' };
const form = (field) => ({ type: 'object', properties: { [field]: { type: 'string' } }, required: [field] });
const said = (text) => ({ content: [{ type: 'text', text }] });

let version = 1;
const grown = [];
// Over HTTP there is a server object for each request, and changes are told through the handler instead.
let published;

function make({ era }) {
  const server = new sdk.McpServer(
    { name, version: '1.0.0' },
    {
      capabilities: {
        logging: {},
        tools: { listChanged: true },
        resources: { subscribe: true, listChanged: true },
      },
    },
  );
  const caller = server.server;

  // `inSession` asks while the call is open, `inRounds` ends the call with its questions.
  function asks(tool, description, inSession, inRounds) {
    server.registerTool(tool, { description }, async (ctx) => {
      if (era === 'modern') return inRounds(ctx.mcpReq);
      try {
        return said(await inSession(ctx.mcpReq));
      } catch (error) {
        if (error.code === undefined) throw error;
        return said(`refused ${error.code}`);
      }
    });
  }

  asks(
    'interview',
    'Ask the user twice and the model once.',
    async (request) => {
      const here = { relatedRequestId: request.id };
      const ask = (message, field) => request.elicitInput({ message, requestedSchema: form(field) }, here);
      const who = await ask(ASK_NAME.message, 'name');
      const color = await ask(ASK_COLOR.message, 'color');
      const answer = await request.requestSampling(SAY_HI, here);
      return `${who.content.name} likes ${color.content.color}, the model says ${answer.content.text}`;
    },
    (request) => {
      const state = request.requestState();
      const { inputResponses } = request;
      if (state === undefined) {
        return inputRequired({ inputRequests: { who: inputRequired.elicit(ASK_NAME) }, requestState: 'who' });
      }
      if (state === 'who') {
        const { name: who } = acceptedContent(inputResponses, 'who', ASK_NAME.requestedSchema);
        const color = inputRequired.elicit(ASK_COLOR);
        return inputRequired({
          inputRequests: { color, said: inputRequired.createMessage(SAY_HI) },
          requestState: who,
        });
      }
      const { color } = acceptedContent(inputResponses, 'color', ASK_COLOR.requestedSchema);
      return said(`${state} likes ${color}, the model says ${inputResponse(inputResponses, 'said').result.content.text}`);
    },
  );
  asks(
    'visit',
    'Send the user to a page.',
    async (request) => {
      const page = { mode: 'url', ...PAGE, elicitationId: 'sign-in-1' };
      return (await request.elicitInput(page, { relatedRequestId: request.id })).action;
    },
    ({ inputResponses }) => {
      if (!inputResponses) return inputRequired({ inputRequests: { page: inputRequired.elicitUrl(PAGE) } });
      return said(inputResponse(inputResponses, 'page').action);
    },
  );
  asks(
    'roots',
    'Ask where the user works.',
    async () => (await caller.listRoots()).roots[0].uri,
    ({ inputResponses }) => {
      if (!inputResponses) return inputRequired({ inputRequests: { roots: inputRequired.listRoots() } });
      return said(inputResponse(inputResponses, 'roots').roots[0].uri);
    },
  );

  server.registerTool('count', { description: 'Report progress at every step.' }, async ({ mcpReq }) => {
    for (const progress of [1, 2, 3]) {
      const params = { progressToken: mcpReq._meta?.progressToken, progress, total: 3, message: `step ${progress}` };
      if (params.progressToken !== undefined) await mcpReq.notify({ method: 'notifications/progress', params });
      await sleep(STEP_MS);
    }
    return said('counted');
  });
  server.registerTool('shout', { description: 'Log a whisper and a shout.' }, async ({ mcpReq }) => {
    await mcpReq.log('debug', 'quiet', 'voice');
    await mcpReq.log('warning', 'loud', 'voice');
    await sleep(STEP_MS);
    return said('shouted');
  });
  server.registerTool('big', { description: 'Say half a million characters.' }, () => said('x'.repeat(500_000)));
  const offer = (tool) => server.registerTool(tool, {}, () => said('new'));
  grown.forEach(offer);
  server.registerTool(
    'grow',
    { description: 'Offer one more tool.', inputSchema: z.object({ tool: z.string() }) },
    ({ tool }) => {
      grown.push(tool);
      offer(tool);
      published?.toolsChanged();
      return said('grown');
    },
  );

  const watched = new Set();
  caller.setRequestHandler('resources/subscribe', ({ params }) => (watched.add(params.uri), {}));
  caller.setRequestHandler('resources/unsubscribe', ({ params }) => (watched.delete(params.uri), {}));
  server.registerTool('touch', { description: 'Change the watched resource.' }, async () => {
    version += 1;
    published?.resourceUpdated(WATCHED);
    if (era === 'modern' ? published === undefined : watched.has(WATCHED)) {
      await caller.sendResourceUpdated({ uri: WATCHED });
    }
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
  const template = new sdk.ResourceTemplate(`${name}://square/{n}`, { list: undefined, complete });
  server.registerResource('square', template, {}, (uri, { n }) => text(uri, String(n ** 2)));
  const who = sdk.completable(z.string(), (value) => ['Ann', 'Anton', 'Ben'].filter((each) => each.startsWith(value)));
  const hello = (to) => ({ messages: [{ role: 'user', content: { type: 'text', text: `Say hello to ${to}` } }] });
  const greeting = { description: 'Greet somebody.', argsSchema: z.object({ who }) };
  server.registerPrompt('greet', greeting, (args) => hello(args.who));
  server.registerPrompt('introduce', { description: 'Greet whoever is there.' }, async ({ mcpReq }) => {
    if (era === 'legacy') {
      const question = { message: ASK_NAME.message, requestedSchema: form('name') };
      return hello((await mcpReq.elicitInput(question, { relatedRequestId: mcpReq.id })).content.name);
    }
    const answer = acceptedContent(mcpReq.inputResponses, 'who', ASK_NAME.requestedSchema);
    if (answer === undefined) return inputRequired({ inputRequests: { who: inputRequired.elicit(ASK_NAME) } });
    return hello(answer.name);
  });
  return server;
}

function serveHttp() {
  const modern = sdk.createMcpHandler(make, { legacy: 'reject' });
  published = modern.notify;
  const serveModern = toNodeHandler(modern);
  const sessions = new Map();
  const http = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = chunks.length ? JSON.parse(Buffer.concat(chunks)) : undefined;
    const isLegacy = await sdk.isLegacyRequest(await toWebRequest(request, body), body);
    if (!isLegacy || process.argv.includes('--modern-only')) {
      await serveModern(request, response, body);
      return;
    }
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (transport === undefined) {
      transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => void sessions.set(id, transport),
      });
      await make({ era: 'legacy' }).connect(transport);
    }
    await transport.handleRequest(request, response, body);
  });
  http.listen(0, '127.0.0.1', () => console.log(http.address().port));
}

if (process.argv.includes('--http')) serveHttp();
else serveStdio(make, { legacy: process.argv.includes('--modern-only') ? 'reject' : 'serve' });
