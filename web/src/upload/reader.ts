import workerUrl from './worker?worker&url';

import type { Chunk } from './chunks';
import type { Report } from './report';
import type { FileFormat } from './rows';
import type { Answer, Question } from './worker';

/** What TypeScript does not know of yet. */
interface TrustedTypes {
  createPolicy: (name: string, rules: { createScriptURL: (url: string) => string }) => { createScriptURL: (url: string) => unknown };
}

/** Takes no address but that of the worker: the policy of the pages allows no script by its address else. */
const policy = (globalThis as { trustedTypes?: TrustedTypes }).trustedTypes?.createPolicy('flowlane', {
  createScriptURL: (url) => {
    if (url !== workerUrl) throw new TypeError('This is no script of the console');
    return url;
  },
});

/** Reads a file in a worker, which ends by close. */
export class Reader {
  private readonly worker = new Worker((policy?.createScriptURL(workerUrl) ?? workerUrl) as string, { type: 'module' });
  private begun = false;

  constructor(private readonly file: Blob, private readonly format: FileFormat) {}

  /** Reads all of the file. */
  check(progress: (bytes: number) => void): Promise<Report> {
    return this.ask({ ask: 'check', file: this.file, format: this.format }, (answer) => {
      if (answer.is === 'read') progress(answer.bytes);
      return answer.is === 'report' ? answer.report : undefined;
    });
  }

  /** The next chunk, the first time that of the index `from`; null after the last. */
  next(chunkSize: number, from: number): Promise<Chunk | null> {
    const question: Question = this.begun ? { ask: 'next' } : { ask: 'chunks', file: this.file, format: this.format, chunkSize, from };
    this.begun = true;
    return this.ask(question, (answer) => (answer.is === 'chunk' ? answer.chunk : answer.is === 'end' ? null : undefined));
  }

  close(): void {
    this.worker.terminate();
  }

  private ask<T>(question: Question, take: (answer: Answer) => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      this.worker.onerror = () => reject(new Error('The file cannot be read.'));
      this.worker.onmessage = ({ data }: MessageEvent<Answer>) => {
        if (data.is === 'failure') {
          reject(new Error(data.message));
          return;
        }
        const taken = take(data);
        if (taken !== undefined) resolve(taken);
      };
      this.worker.postMessage(question);
    });
  }
}
