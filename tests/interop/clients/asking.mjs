// What the two TypeScript clients that answer questions share: `asking.py` in JavaScript.

import { setTimeout as sleep } from 'node:timers/promises';

import { plan } from './plan.mjs';

const POLL_MS = 50;
const HANGING_MS = 10_000;

export const ROOTS = { roots: [{ uri: 'file:///project' }] };
export const SAMPLED = {
  role: 'assistant',
  model: 'none',
  content: { type: 'text', text: 'hi' },
  stopReason: 'endTurn',
};
export const CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
const FILLED_IN = { name: 'Ann', color: 'red' };

const all = [];

export const heard = (method, params) => all.push({ method, params });

export function fillIn(params) {
  if (params.mode === 'url') return { action: 'accept' };
  const fields = Object.keys(params.requestedSchema.properties);
  return { action: 'accept', content: Object.fromEntries(fields.map((field) => [field, FILLED_IN[field]])) };
}

// What both SDKs call by the same names. `call` and `watch` they do not.
export function acts(client) {
  return {
    tools: async () => (await client.listTools({}, { cacheMode: 'refresh' })).tools,
    resources: async () => (await client.listResources({}, { cacheMode: 'refresh' })).resources,
    read: (params) => client.readResource(params),
    prompt: (params) => client.getPrompt(params),
    complete: (params) => client.complete(params),
  };
}

export const onprogress = ({ progress, total, message }) =>
  heard('notifications/progress', { progress, total, message });

async function take(step, act, start, report) {
  const deadline = Date.now() + step.seconds * 1000;
  const wait = async (what) => {
    if (Date.now() > deadline) throw new Error(`waited too long for ${what}`);
    await sleep(POLL_MS);
  };
  report.result = await act(step.arguments);
  const missing = () => (step.expect ?? []).filter((name) => !report.result.some((each) => each.name === name));
  while (missing().length > 0) {
    await wait(missing());
    report.result = await act(step.arguments);
  }
  const isHeard = () => all.slice(start).some(({ method }) => method === step.until);
  while (step.until && !isHeard()) await wait(step.until);
}

export async function walk(acts) {
  const reports = [];
  for (const step of plan.steps) {
    const start = all.length;
    const report = {};
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error('the step took too long')), step.seconds * 1000 + HANGING_MS);
    });
    try {
      await Promise.race([take(step, acts[step.act], start, report), late]);
    } catch (error) {
      report.error = { code: error.code ?? null, message: String(error) };
    }
    clearTimeout(timer);
    reports.push({ ...report, heard: all.slice(start) });
  }
  return reports;
}
