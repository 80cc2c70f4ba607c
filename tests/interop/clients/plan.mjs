// What both TypeScript clients share: `plan.py` in JavaScript, and the walk through the plan.
// The packages live in .envs/node, not above this file, so they are resolved from there.

import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';

const POLL_MS = 100;

export const plan = JSON.parse(process.argv[2]);
export const require = createRequire(`${plan.modules}/package.json`);

// The transport to what the plan names: a command, or a URL at which one of two transports is spoken.
export function reach({ stdio, http, sse }) {
  if (plan.command) return stdio(plan.command[0], plan.command.slice(1));
  const options = { requestInit: { headers: plan.headers } };
  return (plan.transport === 'sse' ? sse : http)(new URL(plan.url), options);
}

async function listTools(client) {
  const tools = [];
  let cursor;
  do {
    const page = await client.listTools(cursor === undefined ? {} : { cursor }, { cacheMode: 'refresh' });
    tools.push(...page.tools);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return tools;
}

// A gateway lists each server when it is ready.
async function listUntil(client) {
  const deadline = Date.now() + plan.seconds * 1000;
  for (;;) {
    const tools = await listTools(client);
    const names = new Set(tools.map((tool) => tool.name));
    const missing = plan.expect.filter((name) => !names.has(name));
    if (missing.length === 0) return tools;
    if (Date.now() > deadline) throw new Error(`not listed after ${plan.seconds} s: ${missing}`);
    await sleep(POLL_MS);
  }
}

async function callTool(callTool, step) {
  const progress = [];
  const abort = new AbortController();
  const options = { signal: abort.signal };
  if (step.progress) {
    options.onprogress = (update) => {
      progress.push({ progress: update.progress, total: update.total ?? null, message: update.message ?? null });
      if (step.cancel) abort.abort('the plan says so');
    };
  }
  try {
    return { progress, result: await callTool({ name: step.name, arguments: step.arguments }, options) };
  } catch (error) {
    if (abort.signal.aborted) return { progress, cancelled: true };
    if (error.code === undefined) throw error;
    return { progress, error: { code: error.code, message: error.message, data: error.data } };
  }
}

// `call` hides the one difference between the SDKs here: where the options go.
export async function run(client, transport, version, call) {
  await client.connect(transport);
  const tools = await listUntil(client);
  const calls = [];
  for (const step of plan.calls) calls.push(await callTool(call, step));
  const protocolVersion = version();
  await client.close();
  process.stdout.write(JSON.stringify({ protocolVersion, tools, calls }));
}
