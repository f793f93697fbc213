import type { Client } from './gen/client/index.js';
import { RecordSetsOperations, type RecordSet } from './gen/index.js';

/** Records to upload: objects, or a file of NDJSON or CSV. */
export type Source = Blob | Iterable<object> | AsyncIterable<object>;

export interface UploadOptions {
  /** Records in each request, 1000 unless given; a request may have 16777216 bytes. */
  chunkSize?: number;
  /** Requests at a time, 4 unless given. */
  concurrency?: number;
  /** How a file is to be read: by its name's end unless given, and NDJSON where that says nothing. */
  format?: 'ndjson' | 'csv';
  /** Notes of yours, kept with the set. */
  metadata?: Record<string, unknown>;
  /** Called after each request with the number of records that are stored by then. */
  onProgress?: (progress: { records: number }) => void;
  signal?: AbortSignal;
}

/** The operations of record sets, and the upload of a whole one. */
export class Records extends RecordSetsOperations {
  /** Takes, beside the client, what sends a request once. */
  constructor(
    connected: Client,
    private readonly once: typeof fetch,
  ) {
    super({ client: connected });
  }

  /**
   * Uploads records and seals the set, which a trigger can then use as `record_set_id`. The lines of NDJSON are sent as they are,
   * so that numbers keep every digit. A set whose upload fails is deleted.
   */
  async upload(source: Source, options: UploadOptions = {}): Promise<RecordSet> {
    const { upload } = await import('./upload.js'); // which pages that only read need not load
    return upload(this, this.once, source, options);
  }
}
