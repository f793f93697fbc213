// Reads files beside the page, so that the page stays quick.
import { chunks, type Chunk } from './chunks';
import { check, type Report } from './report';
import type { Format } from './rows';

/** What the page asks for. Each `next` is answered by one chunk, or by `end`. */
export type Question =
  | { ask: 'check'; file: Blob; format: Format }
  | { ask: 'chunks'; file: Blob; format: Format; chunkSize: number; from: number }
  | { ask: 'next' };

export type Answer =
  | { is: 'read'; bytes: number }
  | { is: 'report'; report: Report }
  | { is: 'chunk'; chunk: Chunk }
  | { is: 'end' }
  | { is: 'failure'; message: string };

let source: AsyncGenerator<Chunk, void, undefined> | undefined;

const say = (answer: Answer, moved: Transferable[] = []) => self.postMessage(answer, { transfer: moved });

async function answer(question: Question): Promise<void> {
  if (question.ask === 'check') {
    const report = await check(question.file, question.format, (bytes) => say({ is: 'read', bytes }));
    say({ is: 'report', report });
    return;
  }
  if (question.ask === 'chunks') source = chunks(question.file, question.format, question.chunkSize, question.from);
  const { value, done } = await source!.next();
  if (done) say({ is: 'end' });
  else say({ is: 'chunk', chunk: value }, [value.body.buffer]);
}

self.addEventListener('message', (event: MessageEvent<Question>) => {
  answer(event.data).catch((error: unknown) => say({ is: 'failure', message: error instanceof Error ? error.message : String(error) }));
});
