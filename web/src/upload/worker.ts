// Reads files beside the page, so that the page stays quick.
import { chunks, type Chunk } from './chunks';
import { check, checkBook, type Report } from './report';
import type { FileFormat } from './rows';

/** What the page asks for. Each `next` is answered by one chunk, or by `end`. */
export type Question =
  | { ask: 'check'; file: Blob; format: FileFormat }
  | { ask: 'chunks'; file: Blob; format: FileFormat; chunkSize: number; from: number }
  | { ask: 'next' };

export type Answer =
  | { is: 'read'; bytes: number }
  | { is: 'report'; report: Report }
  | { is: 'chunk'; chunk: Chunk }
  | { is: 'end' }
  | { is: 'failure'; message: string };

/** The lines of the workbook that was checked. */
let book: Blob | undefined;
let source: AsyncGenerator<Chunk, void, undefined> | undefined;

const say = (answer: Answer, moved: Transferable[] = []) => self.postMessage(answer, { transfer: moved });

async function checked({ file, format }: { file: Blob; format: FileFormat }, progress: (bytes: number) => void): Promise<Report> {
  if (format !== 'xlsx') return check(file, format, progress);
  const { report, lines } = await checkBook(file, progress);
  book = lines;
  return report;
}

async function answer(question: Question): Promise<void> {
  if (question.ask === 'check') {
    const progress = (bytes: number) => say({ is: 'read', bytes });
    say({ is: 'report', report: await checked(question, progress) });
    return;
  }
  if (question.ask === 'chunks') {
    const { file, format, chunkSize, from } = question;
    if (format === 'xlsx') book ??= (await checkBook(file, () => undefined)).lines;
    source = format === 'xlsx' ? chunks(book!, 'ndjson', chunkSize, from) : chunks(file, format, chunkSize, from);
  }
  const { value, done } = await source!.next();
  if (done) say({ is: 'end' });
  else say({ is: 'chunk', chunk: value }, [value.body.buffer]);
}

self.addEventListener('message', (event: MessageEvent<Question>) => {
  answer(event.data).catch((error: unknown) => say({ is: 'failure', message: error instanceof Error ? error.message : String(error) }));
});
