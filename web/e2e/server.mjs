// A development server of its own for each file of tests: with its own Postgres, in a folder that goes when it ends.
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { chromium } from 'playwright-core';

const program = fileURLToPath(new URL('../../bin/flowlane', import.meta.url));

/** Starts a server and a browser; stop ends both. */
export async function start(...more) {
  const folder = await mkdtemp(path.join(tmpdir(), 'flowlane-console-'));
  const args = ['dev', '--data-dir', path.join(folder, 'data'), '--listen', '127.0.0.1:0', '--json', ...more];
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const said = { out: '', err: '' };
  child.stderr.on('data', (text) => (said.err += text));
  const facts = await new Promise((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`the server ended with ${code}: ${said.err}`)));
    child.stdout.on('data', (text) => {
      said.out += text;
      try {
        resolve(JSON.parse(said.out));
      } catch { /* not all of it has come */ }
    });
  });
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
  return {
    url: facts.url,
    link: facts.console_url,
    key: facts.api_key,
    browser,
    /** Sends a request of the API with the key, and returns what was answered. */
    async api(method, address, body) {
      const answer = await fetch(`${facts.url}/v1${address}`, {
        method, headers: { 'X-API-Key': facts.api_key, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body),
      });
      if (!answer.ok) throw new Error(`${method} ${address}: ${answer.status} ${await answer.text()}`);
      return answer.status === 204 ? undefined : answer.json();
    },
    async stop() {
      await browser.close();
      child.removeAllListeners('exit');
      const ended = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGINT');
      await ended;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Starts an issuer of tokens that others wrote, and an API that takes its tokens. */
export async function issuer() {
  const script = `
    const { OAuth2Server } = require("oauth2-mock-server");
    const server = new OAuth2Server();
    server.service.requestHandler.get("/things", (req, res) => res.status(/^Bearer ey|^Token good/.test(req.headers.authorization) ? 200 : 401).json({}));
    server.issuer.keys.generate("RS256").then(() => server.start(0, "127.0.0.1")).then(() => console.log(server.address().port));`;
  const cwd = fileURLToPath(new URL('../../test/servers/', import.meta.url));
  const child = spawn('node', ['-e', script], { cwd, stdio: ['ignore', 'pipe', 'inherit'] });
  const port = await new Promise((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`the issuer ended with ${code}; run npm ci in test/servers`)));
    child.stdout.once('data', (text) => resolve(String(text).trim()));
  });
  return { url: `http://127.0.0.1:${port}`, host: `127.0.0.1:${port}`, stop: () => child.removeAllListeners('exit').kill() };
}

/** Opens a page that notes what a page of ours must not do: break its policy, fail, or ask somebody else. */
export async function open(server, options = {}) {
  const context = await server.browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  const faults = [];
  page.on('console', (m) => m.type() === 'error' && !m.text().startsWith('Failed to load resource') && faults.push(m.text()));
  page.on('pageerror', (e) => faults.push(e.message));
  page.on('request', (r) => !r.url().startsWith(server.url) && !r.url().startsWith('data:') && faults.push(`asks ${r.url()}`));
  return { context, page, faults };
}

/** Waits until something holds, for ten seconds at most. */
export async function until(holds, what) {
  for (const end = Date.now() + 10_000; Date.now() < end; await new Promise((r) => setTimeout(r, 100))) {
    if (await holds()) return;
  }
  throw new Error(`did not come: ${what}`);
}
