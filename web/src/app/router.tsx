import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from '@tanstack/react-router';

import type { BatchStatus, FireStatus, JobStatus, RecordSetStatus, TriggerType } from '../api/client';
import { Frame } from './frame';
import { Login } from './login';
import { Lost } from './lost';

type Period = '1h' | '24h' | '7d' | '30d';
type Tab = 'errors' | 'records' | 'calls' | 'origin';

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
const start = createRoute({ getParentRoute: () => frame, path: '/index.html', beforeLoad: () => { throw redirect({ to: '/' }); } });

const tree = root.addChildren([
  login,
  frame.addChildren([
    overview, batches, batch, record, accounts, account, startBatch, sets, start,
    inbox, schedules, schedule,
  ]),
]);

/** Every address of the console and the screen that it shows. */
export const makeRouter = () => createRouter({ routeTree: tree, basepath: '/console', defaultPreload: 'intent', scrollRestoration: true });
