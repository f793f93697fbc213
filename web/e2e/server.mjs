// A development server of its own for each file of tests: with its own Postgres, in a folder that goes when it ends.
import { execFile, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { browse, open, until } from './page.mjs';

export { open, until };

const program = fileURLToPath(new URL('../../bin/flowlane', import.meta.url));

/** Starts the program, and returns what it says of itself once it is ready. */
async function launch(args) {
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
  child.removeAllListeners('exit');
  return { child, said, facts };
}

/** Ends a program in order; one that does not end tells where it stands. */
async function end({ child, said }) {
  if (child.exitCode !== null || child.signalCode !== null) throw new Error(`the server has ended by itself: ${said.err.slice(-4000)}`);
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGINT');
  const late = setTimeout(() => child.kill('SIGQUIT'), 60_000);
  const code = await ended;
  clearTimeout(late);
  if (code !== 0) throw new Error(`the server ended with ${code}: ${said.err.slice(-100_000)}`);
}

/** Starts a server and a browser; stop ends both, and fails where the log holds what it must not. */
export async function start(...flags) {
  const folder = await mkdtemp(path.join(tmpdir(), 'flowlane-console-'));
  const args = ['dev', '--data-dir', path.join(folder, 'data'), '--json', '--log-level', 'debug', ...flags];
  const [first, browser] = await Promise.all([launch([...args, '--listen', '127.0.0.1:0']), browse()]);
  let { child, said } = first;
  const { facts } = first;
  const logs = [said];
  const cookies = new Map();
  const secrets = [facts.api_key];
  return {
    url: facts.url,
    link: facts.console_url,
    key: facts.api_key,
    sim: facts.sim_url,
    operator: facts.operator_url,
    browser,
    /** What the server has logged. */
    log: () => logs.map((l) => l.err).join(''),
    /** Sends a request of the API with the key, and returns what was answered. */
    async api(method, address, body) {
      const answer = await fetch(`${facts.url}/v1${address}`, {
        method, headers: { 'X-API-Key': facts.api_key, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body),
      });
      if (!answer.ok) throw new Error(`${method} ${address}: ${answer.status} ${await answer.text()}`);
      return answer.status === 204 ? undefined : answer.json();
    },
    /** The cookies of a session of a key, which tests that do not end it share; own is one that nobody else has. */
    async session(key = facts.api_key, own = false) {
      if (!own && cookies.has(key)) return cookies.get(key);
      const answer = await fetch(`${facts.url}/v1/account/session`, { method: 'POST', headers: { 'X-API-Key': key, 'X-Flowlane-Console': '1' } });
      if (!answer.ok) throw new Error(`sign in: ${answer.status} ${await answer.text()}`);
      const [, name, value] = /^([^=]+)=([^;]+)/.exec(answer.headers.get('set-cookie'));
      secrets.push(key, value);
      const made = [{ name, value, url: facts.url.replace('http:', 'https:'), httpOnly: true, secure: true, sameSite: 'Strict' }];
      if (!own) cookies.set(key, made);
      return made;
    },
    /** Runs statements in the server's Postgres. */
    async sql(text) {
      const { stdout } = await promisify(execFile)('psql', ['--no-psqlrc', '-qAtv', 'ON_ERROR_STOP=1', '-c', text, facts.database_url]);
      return stdout.trim();
    },
    /** Ends the server for a time; the function that it returns starts it again where it was. */
    async pause() {
      await end({ child, said });
      return async () => {
        ({ child, said } = await launch([...args, '--listen', new URL(facts.url).host]));
        logs.push(said);
      };
    },
    async stop() {
      // A browser that does not close says nothing of the console: it goes with the process of the test.
      await Promise.race([browser.close(), sleep(30_000, undefined, { ref: false })]);
      await end({ child, said });
      await rm(folder, { recursive: true, force: true });
      const text = logs.map((l) => l.err).join('');
      const secret = secrets.find((s) => text.includes(s)) ?? /login_[A-Za-z0-9_-]{8}|whsec_[A-Za-z0-9+/]{8}/.exec(text)?.[0];
      if (secret) throw new Error(`the log holds the secret ${secret.slice(0, 12)}…`);
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
