import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from '@tanstack/react-router';

import type { AuditOutcome, BatchStatus, DefinitionStatus, FireStatus, JobStatus, RecordSetStatus, TriggerType, WebhookDeliveryStatus } from '../api/client';
import { Frame } from './frame';
import { Login } from './login';
import { Lost } from './lost';

type Period = '1h' | '24h' | '7d' | '30d';
type FlowTab = 'steps' | 'text' | 'versions' | 'used by';
type Tab = 'errors' | 'records' | 'calls' | 'speed' | 'origin';

/** Text of the address, where it has some. */
const text = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined);

const root = createRootRoute({ notFoundComponent: Lost });
const login = createRoute({ getParentRoute: () => root, path: '/login', component: Login });
const frame = createRoute({ getParentRoute: () => root, id: 'frame', component: Frame });

const inbox = createRoute({ getParentRoute: () => frame, path: '/inbox', component: lazyRouteComponent(() => import('../pages/inbox'), 'Inbox') });
const schedules = createRoute({
  getParentRoute: () => frame,
  path: '/schedules',
  component: lazyRouteComponent(() => import('../pages/schedules'), 'Schedules'),
});
const schedule = createRoute({
  getParentRoute: () => frame,
  path: '/schedules/$scheduleId',
  validateSearch: (search: Record<string, unknown>): { status?: FireStatus } => ({ status: text(search.status) as FireStatus | undefined }),
  component: lazyRouteComponent(() => import('../pages/schedules'), 'SchedulePage'),
});
const webhooks = createRoute({ getParentRoute: () => frame, path: '/webhooks', component: lazyRouteComponent(() => import('../pages/webhooks'), 'Webhooks') });
const webhook = createRoute({
  getParentRoute: () => frame,
  path: '/webhooks/$webhookId',
  validateSearch: (search: Record<string, unknown>): { status?: WebhookDeliveryStatus } => ({ status: text(search.status) as WebhookDeliveryStatus | undefined }),
  component: lazyRouteComponent(() => import('../pages/webhooks'), 'WebhookPage'),
});
const events = createRoute({ getParentRoute: () => frame, path: '/events', component: lazyRouteComponent(() => import('../pages/events'), 'Events') });
const credentials = createRoute({
  getParentRoute: () => frame,
  path: '/credentials',
  component: lazyRouteComponent(() => import('../pages/credentials'), 'Credentials'),
});
const credential = createRoute({
  getParentRoute: () => frame,
  path: '/credentials/$credentialId',
  component: lazyRouteComponent(() => import('../pages/credential'), 'CredentialPage'),
});
type By = 'day' | 'definition' | 'credential' | 'action';
const usage = createRoute({
  getParentRoute: () => frame,
  path: '/usage',
  validateSearch: (search: Record<string, unknown>): { by?: By; days?: number } => ({
    by: text(search.by) as By | undefined,
    days: typeof search.days === 'number' ? search.days : undefined,
  }),
  component: lazyRouteComponent(() => import('../pages/usage'), 'Usage'),
});
const limits = createRoute({ getParentRoute: () => frame, path: '/limits', component: lazyRouteComponent(() => import('../pages/limits'), 'Limits') });
const keys = createRoute({ getParentRoute: () => frame, path: '/keys', component: lazyRouteComponent(() => import('../pages/keys'), 'Keys') });
const audit = createRoute({
  getParentRoute: () => frame,
  path: '/audit',
  validateSearch: (search: Record<string, unknown>): { action?: string; outcome?: AuditOutcome; resource?: string } => ({
    action: text(search.action),
    outcome: text(search.outcome) as AuditOutcome | undefined,
    resource: text(search.resource),
  }),
  component: lazyRouteComponent(() => import('../pages/audit'), 'Audit'),
});
const variables = createRoute({ getParentRoute: () => frame, path: '/variables', component: lazyRouteComponent(() => import('../pages/data'), 'Variables') });
const stores = createRoute({ getParentRoute: () => frame, path: '/stores', component: lazyRouteComponent(() => import('../pages/data'), 'Stores') });
const store = createRoute({
  getParentRoute: () => frame,
  path: '/stores/$store',
  validateSearch: (search: Record<string, unknown>): { filter?: string; sort?: 'written' } => ({
    filter: text(search.filter),
    sort: search.sort === 'written' ? 'written' : undefined,
  }),
  component: lazyRouteComponent(() => import('../pages/store'), 'StorePage'),
});
const storeRecord = createRoute({
  getParentRoute: () => frame,
  path: '/stores/$store/$key',
  component: lazyRouteComponent(() => import('../pages/store-record'), 'StoreRecordPage'),
});
const tenants = createRoute({ getParentRoute: () => frame, path: '/tenants', component: lazyRouteComponent(() => import('../pages/data'), 'Tenants') });

const overview = createRoute({
  getParentRoute: () => frame,
  path: '/',
  validateSearch: (search: Record<string, unknown>): { period?: Period } => ({ period: text(search.period) as Period | undefined }),
  component: lazyRouteComponent(() => import('../pages/overview'), 'Overview'),
});
const batches = createRoute({
  getParentRoute: () => frame,
  path: '/batches',
  validateSearch: (search: Record<string, unknown>): { status?: BatchStatus; flow?: string; via?: TriggerType } => ({
    status: text(search.status) as BatchStatus | undefined,
    flow: text(search.flow),
    via: text(search.via) as TriggerType | undefined,
  }),
  component: lazyRouteComponent(() => import('../pages/batches'), 'Batches'),
});
const batch = createRoute({
  getParentRoute: () => frame,
  path: '/batches/$batchId',
  validateSearch: (search: Record<string, unknown>): { tab?: Tab; status?: JobStatus } => ({
    tab: text(search.tab) as Tab | undefined,
    status: text(search.status) as JobStatus | undefined,
  }),
  component: lazyRouteComponent(() => import('../pages/batch'), 'BatchPage'),
});
const record = createRoute({
  getParentRoute: () => frame,
  path: '/batches/$batchId/$position',
  component: lazyRouteComponent(() => import('../pages/record'), 'RecordPage'),
});
const accounts = createRoute({
  getParentRoute: () => frame,
  path: '/accounts',
  component: lazyRouteComponent(() => import('../pages/accounts'), 'Accounts'),
});
const account = createRoute({
  getParentRoute: () => frame,
  path: '/accounts/$platformId/$tenancyId',
  component: lazyRouteComponent(() => import('../pages/account'), 'AccountPage'),
});
const startBatch = createRoute({
  getParentRoute: () => frame,
  path: '/start',
  validateSearch: (search: Record<string, unknown>): { flow?: string; set?: string } => ({ flow: text(search.flow), set: text(search.set) }),
  component: lazyRouteComponent(() => import('../pages/start'), 'Start'),
});
const sets = createRoute({
  getParentRoute: () => frame,
  path: '/sets',
  validateSearch: (search: Record<string, unknown>): { status?: RecordSetStatus } => ({ status: text(search.status) as RecordSetStatus | undefined }),
  component: lazyRouteComponent(() => import('../pages/sets'), 'Sets'),
});
const flows = createRoute({
  getParentRoute: () => frame,
  path: '/flows',
  validateSearch: (search: Record<string, unknown>): { status?: DefinitionStatus; name?: string } => ({
    status: text(search.status) as DefinitionStatus | undefined,
    name: text(search.name),
  }),
  component: lazyRouteComponent(() => import('../pages/flows'), 'Flows'),
});
const flow = createRoute({
  getParentRoute: () => frame,
  path: '/flows/$flowId',
  validateSearch: (search: Record<string, unknown>): { tab?: FlowTab; v?: number } => ({
    tab: text(search.tab) as FlowTab | undefined,
    v: Number(search.v) || undefined,
  }),
  component: lazyRouteComponent(() => import('../pages/flow'), 'FlowPage'),
});
const catalog = createRoute({
  getParentRoute: () => frame,
  path: '/catalog',
  validateSearch: (search: Record<string, unknown>): { q?: string; action?: string } => ({ q: text(search.q), action: text(search.action) }),
  component: lazyRouteComponent(() => import('../pages/catalog'), 'Catalog'),
});
const imports = createRoute({
  getParentRoute: () => frame,
  path: '/catalog/imports',
  component: lazyRouteComponent(() => import('../pages/imports'), 'Imports'),
});
const importPage = createRoute({
  getParentRoute: () => frame,
  path: '/catalog/import',
  validateSearch: (search: Record<string, unknown>): { platform?: string } => ({ platform: text(search.platform) }),
  component: lazyRouteComponent(() => import('../pages/import'), 'ImportPage'),
});
const start = createRoute({ getParentRoute: () => frame, path: '/index.html', beforeLoad: () => { throw redirect({ to: '/' }); } });

const tree = root.addChildren([
  login,
  frame.addChildren([
    overview, batches, batch, record, accounts, account, startBatch, sets, flows, flow, catalog, imports, importPage, start,
    inbox, schedules, schedule, webhooks, webhook, events, credentials, credential, usage, limits, keys, audit, variables, stores, store, storeRecord, tenants,
  ]),
]);

/** Every address of the console and the screen that it shows. */
export const makeRouter = () => createRouter({ routeTree: tree, basepath: '/console', defaultPreload: 'intent', scrollRestoration: true });
