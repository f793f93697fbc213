/**
 * Goes through all items of a list, page by page:
 *
 *     for await (const batch of items((page) => flow.batches.list({ query: { status: 'failed', ...page } }))) ...
 */
export async function* items<T>(
  list: (page: { cursor?: string }) => Promise<{ items: Array<T>; next_cursor: string | null }>,
): AsyncGenerator<T, void, undefined> {
  let page: { cursor?: string } = {};
  for (;;) {
    const { items: found, next_cursor: cursor } = await list(page);
    yield* found;
    if (cursor === null) return;
    page = { cursor };
  }
}
